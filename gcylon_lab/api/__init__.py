"""What a person calls on a rank: `Table`, its verbs, and the readers."""
