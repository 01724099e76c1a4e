"""What a profile says of its servers while they run."""
