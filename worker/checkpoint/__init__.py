"""A checkpoint on disk: what a source holds, and the layout that experts stream from."""
