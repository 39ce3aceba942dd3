"""The kernels that this image's steps take: moet_kernels.<family>.op has a family's torch operators."""
