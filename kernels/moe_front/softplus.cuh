// The router's score in nothing but correctly rounded fp32 operations, so that every architecture, and numpy, gets the
// same bits: which experts are chosen does not depend on the GPU. Within 3 * 2^-24 of the exact value
// (test_reference.py).
#pragma once
#include <cstdint>

namespace moet {

// exp(t), -86 <= t <= 0: 2^n times a polynomial in what is left.
__device__ __forceinline__ float exp_of_negative(float t) {
    constexpr float kLog2E = 1.44269502f, kRound = 12582912.f, kLn2High = 0.693359375f, kLn2Low = -2.12194442e-4f;
    const float shifted = __fmaf_rn(t, kLog2E, kRound), n = __fsub_rn(shifted, kRound);
    const float r = __fmaf_rn(n, -kLn2Low, __fmaf_rn(n, -kLn2High, t));
    float p = __fmaf_rn(1.39336521e-3f, r, 8.36318173e-3f);
    p = __fmaf_rn(p, r, 4.16664667e-2f);
    p = __fmaf_rn(p, r, 0.166665763f);
    p = __fmaf_rn(p, r, 0.5f);
    p = __fmaf_rn(p, r, 1.f);
    p = __fmaf_rn(p, r, 1.f);
    // The low bits of `shifted` are n; the rest of it leaves the word.
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

// log(1 + e) / e, 0 <= e <= 1.
__device__ __forceinline__ float log1p_ratio(float e) {
    float q = __fmaf_rn(-3.25637846e-3f, e, 1.99071616e-2f);
    q = __fmaf_rn(q, e, -5.70642017e-2f);
    q = __fmaf_rn(q, e, 0.106142648f);
    q = __fmaf_rn(q, e, -0.153118625f);
    q = __fmaf_rn(q, e, 0.196781173f);
    q = __fmaf_rn(q, e, -0.249545589f);
    q = __fmaf_rn(q, e, 0.333300054f);
    q = __fmaf_rn(q, e, -0.499999046f);
    return __fmaf_rn(q, e, 1.f);
}

// sqrt(log(1 + exp(logit))). 0 below -86; infinity of infinity; NaN of NaN.
__device__ __forceinline__ float sqrt_softplus(float logit) {
    const float t = -fabsf(logit), e = t < -86.f ? 0.f : exp_of_negative(t);
    const float positive = logit <= 0.f ? 0.f : logit;  // NaN too
    return __fsqrt_rn(__fmaf_rn(e, log1p_ratio(e), positive));
}

}  // namespace moet
