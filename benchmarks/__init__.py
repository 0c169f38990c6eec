"""One file a claim; each claim is a ratio measured in one run and printed on one line. Run all: make bench."""
