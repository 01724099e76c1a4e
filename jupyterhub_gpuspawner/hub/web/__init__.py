"""What all pages and requests share: templates, styles and scripts, and the limit of requests."""
