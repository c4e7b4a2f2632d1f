"""Profile data; a package so that it is installed with the code."""
