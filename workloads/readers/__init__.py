"""One trace format a file; `workloads.formats` is the table of them."""
