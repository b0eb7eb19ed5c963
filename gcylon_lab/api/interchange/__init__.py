"""Rows in and out as Arrow and as arrays, without copies where the types allow."""
