"""All of this assignment that students never get, besides the folders of this name inside its problems."""
