//! Tests of the client against a server that answers wrongly.
