"""What benches share: cases, checks, processes that take turns, reports."""
