"""What is done with the rows of one rank, on the CPU and on GPUs; no rank knows of another here."""
