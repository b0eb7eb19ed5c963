"""Plans: pure arithmetic over sizes that all ranks share."""
