"""llama.cpp through its C API, in process."""
