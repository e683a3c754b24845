"""The untrusted side, which runs in the same process as a submission.

Nothing here knows an expected value or imports the trusted side.
"""
