"""End the process with exit status 0 while it is imported.

plain: forged
report: the import: the process ended or closed its channel
"""

import os

os._exit(0)
