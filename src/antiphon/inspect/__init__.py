"""``antiphon inspect``: a page that shows a server's conversations round by round, and the application behind it."""
