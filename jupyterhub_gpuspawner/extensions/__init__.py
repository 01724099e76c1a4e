"""What can be taken away: each folder is one subject, whole, and `rm -r` of it leaves a package that works."""
