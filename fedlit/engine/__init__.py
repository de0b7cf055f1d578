"""How clients' steps are executed: one after another, side by side, or, for clients of the same
structure, as one.

The plain engine is the reference: it equals a hand-written loop over clients, bit for bit. The
threaded engine runs the same operations with the same number of intra-op threads, only at the same
time, so it gives the same bits as the plain one with that number. Stacking agrees with both to
float32 tolerance.
"""
