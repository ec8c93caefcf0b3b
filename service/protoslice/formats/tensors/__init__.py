"""The former import paths for formats of other packages, kept until 0.3. Import from `protoslice.formats` instead."""
