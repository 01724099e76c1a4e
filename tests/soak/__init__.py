"""Random faults for minutes or hours, and an account of every job at the end."""
