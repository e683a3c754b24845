"""Complete starter code, to use and to read: there is nothing to write in this folder."""
