"""What frames of pandas have beside verbs: rows by place, groups by what is computed, other names of verbs."""
