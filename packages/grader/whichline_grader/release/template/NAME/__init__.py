"""CHANGE: this folder is what students write. What lies between the markers of a solution does not reach them."""
