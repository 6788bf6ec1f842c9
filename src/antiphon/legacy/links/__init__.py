"""A client of the older revisions: links that speak the modern one upwards."""
