"""Never come back from being imported.

plain: hung
report: the import: no answer within
"""

while True:
    pass
