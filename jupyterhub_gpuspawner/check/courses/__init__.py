"""What courses are checked against, and what is found."""
