//! Traces of memory references, in the formats people have them in.
