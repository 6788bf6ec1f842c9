"""Calls that wait for a person: rows in a store, the page that shows and answers them, and the notice of them."""
