"""DeepGEMM, as vLLM bundles it under vllm/third_party/deep_gemm: no file of its own to fetch.

To bump: with vLLM. The commit stands in vLLM's cmake/external_projects/deepgemm.cmake (its sdist).
"""

DEEPGEMM = struct(
    name = "deepgemm",
    # Of the release that the commit (of vllm-project/DeepGEMM) adds its SM120 port to.
    version = "2.8.1",
    commit = "0820030756945b2daec208e8e8255268360f337d",
)
