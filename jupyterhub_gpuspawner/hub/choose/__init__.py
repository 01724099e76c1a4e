"""What a user chooses: the form, its offers, and a trial of a choice; the same over REST."""
