"""TPC-H: queries, answers, and their bench."""
