"""The tiers below the device tier: page-locked memory and disk."""
