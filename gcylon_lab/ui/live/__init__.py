"""What widgets share: they listen once shown, rest while unseen, and are freed."""
