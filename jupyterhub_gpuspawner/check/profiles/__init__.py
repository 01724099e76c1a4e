"""Whether profiles and courses would run, for whom, and why not."""
