"""DeepSeek-V4.1-Flash on 1-4 sm_120 cards: what the image holds. Data only."""

load("//images:line.bzl", "layer_group", "line", "step")
load("//third_party/deepgemm:pin.bzl", "DEEPGEMM")
load("//third_party/flashinfer:pin.bzl", "FLASHINFER")
load("//third_party/torch:pin.bzl", "TORCH")
load("//third_party/vllm:pin.bzl", "VLLM")

DSV41 = line(
    name = "dsv41",
    title = "DeepSeek-V4.1-Flash for sm_120",
    description = "vLLM %s with Moet's steps for DeepSeek-V4.1-Flash on RTX PRO 6000 and RTX 5090" % VLLM.version,
    base = VLLM,
    release = 2,
    closure = "dsv41",
    sources = [DEEPGEMM, FLASHINFER, TORCH, VLLM],
    # From what changes once a year to what changes every week: an engine reloads from the first
    # layer that differs.
    groups = [
        layer_group("cudnn", ["nvidia-cudnn-cu13"]),
        layer_group("cublas", ["nvidia-cublas"]),
        layer_group("cufft", ["nvidia-cufft", "nvidia-cusolver"]),
        layer_group("cusparse", ["nvidia-curand", "nvidia-cusparse", "nvidia-cusparselt-cu13"]),
        layer_group("toolkit", [
            "cuda-bindings",
            "cuda-core",
            "cuda-pathfinder",
            "cuda-python",
            "cuda-tile",
            "cuda-toolkit",
            "nvidia-cuda-cccl",
            "nvidia-cuda-crt",
            "nvidia-cuda-cupti",
            "nvidia-cuda-nvcc",
            "nvidia-cuda-nvrtc",
            "nvidia-cuda-runtime",
            "nvidia-cufile",
            "nvidia-ml-py",
            "nvidia-nvjitlink",
            "nvidia-nvtx",
            "nvidia-nvvm",
            "nvtx",
        ]),
        layer_group("nccl", ["nccl-extensions", "nccl4py", "nvidia-nccl-cu13", "nvidia-nvshmem-cu13"]),
        layer_group("media", ["opencv-python-headless", "pillow", "pynvvideocodec", "torchaudio", "torchcodec", "torchvision"]),
        layer_group("torch", ["torch"]),
        layer_group("triton", ["triton"]),
        layer_group("cutlass", [
            "nvidia-cutlass-dsl",
            "nvidia-cutlass-dsl-libs-base",
            "nvidia-cutlass-dsl-libs-core",
            "nvidia-cutlass-dsl-libs-cu12",
            "nvidia-cutlass-dsl-libs-cu13",
        ]),
        layer_group("compilers", ["apache-tvm-ffi", "llvmlite", "ninja", "numba", "tilelang", "torch-c-dlpack-ext", "z3-solver"]),
        # Every wheel that no other group names.
        layer_group("python", rest = True),
        layer_group("kernels", [
            "flashinfer-python",
            "humming-kernels",
            "nvidia-cudnn-frontend",
            "quack-kernels",
            "tokenspeed-mla",
            "tokenspeed-triton",
        ]),
        layer_group("vllm", ["vllm"]),
    ],
    drop = {
        # A build script at the top of site-packages, which flashinfer-python installs too.
        "compilers": ["usr/local/lib/python3.11/dist-packages/build_backend.py"],
        "kernels": ["usr/local/lib/python3.11/dist-packages/build_backend.py"],
        # Static archives of the profiler: nothing links against them at run time.
        "triton": ["usr/local/lib/python3.11/dist-packages/triton/backends/nvidia/lib/cupti*/*.a"],
    },
    # Where run-time compilation looks for a toolkit, in an installation of wheels.
    links = {
        "usr/local/cuda": "/usr/local/lib/python3.11/dist-packages/nvidia/cu13",
        "usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib/libcudart.so": "libcudart.so.13",
        # The driver's library, which the container runtime mounts from the host.
        "usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib/stubs/libcuda.so": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "usr/local/lib/python3.11/dist-packages/nvidia/cu13/lib64": "lib",
    },
    env = {
        "CUDA_HOME": "/usr/local/cuda",
        "HOME": "/var/lib/moet",
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/local/cuda/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
    },
    steps = [
        step(
            number = 1,
            name = "reasoning-effort-tiers",
            patches = ["reasoning-effort-tiers.patch"],
            switch = "VLLM_MOET_REASONING_TIERS",
            default = "1",
            numerics = "none",
            reason = "Requests with reasoning_effort minimal, medium or xhigh are answered with HTTP 400.",
            evidence = "//images/dsv41:engine_test",
            drop_when = "vLLM accepts these tiers for deepseek_v41",
        ),
        step(
            number = 2,
            name = "native-next-n",
            patches = ["native-next-n.patch"],
            switch = "VLLM_MOET_NATIVE_NEXT_N",
            default = "0",
            numerics = "rounding",
            reason = "On sm_120 speculative decoding flattens its rows and reads each request's index keys once a row.",
            evidence = "//images/dsv41:engine_test",
            drop_when = "vLLM's indexer allows every next_n on family 120",
        ),
        step(
            number = 3,
            name = "moe-row-alignment",
            patches = ["moe-row-alignment.patch"],
            switch = "VLLM_MOET_MOE_BLOCK_M",
            default = "0",
            on = "64",
            numerics = "rounding",
            reason = "Expert rows are padded to 128 also when a decode step has a handful of them.",
            evidence = "//images/dsv41:engine_test",
            drop_when = "vLLM takes the alignment from a working query of DeepGEMM",
        ),
    ],
)
