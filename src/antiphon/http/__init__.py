"""HTTP/1.1 on httptools: the server's connections and the client's. Imports nothing else of antiphon."""
