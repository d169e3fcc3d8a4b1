"""What every outside check needs: pinned tools, brokers to start and kill, words and counts.

Only the standard library is used here, so that the first stage on a fresh machine can already run it.
"""
