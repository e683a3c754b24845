from . import a1 as A1
