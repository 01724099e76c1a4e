"""Random faults for minutes or hours, after which every job is accounted for."""
