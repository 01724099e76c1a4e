"""The instructors' pages: the list of courses, and the page of one with its participants."""
