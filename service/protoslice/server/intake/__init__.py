"""Request bodies on their way into stores: raw, form, tar and resumable."""
