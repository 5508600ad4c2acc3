// What every kernel may use: exact conversions of narrow types and arithmetic that nothing traps. No include file.
// Numbers are rounded after each operation as the reference interpreter rounds them; compile without fused multiply-add.
template<class T, int N> struct __align__(sizeof(T) * N) offc_vec { T x[N]; };

__device__ inline float offc_bf16_load(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
__device__ inline unsigned short offc_bf16_store(float f) {
  unsigned w = __float_as_uint(f);
  if ((w & 0x7fffffffu) > 0x7f800000u) return (unsigned short)((w >> 16 & 0x8000u) | 0x7fc0u);
  return (unsigned short)((w + 0x7fffu + (w >> 16 & 1u)) >> 16);
}
__device__ inline float offc_bf16(float f) { return offc_bf16_load(offc_bf16_store(f)); }

// A format: exponent and mantissa bits, bias, and what lies beyond the largest number:
// 0 infinities and NaNs, 1 one NaN a sign, 2 one NaN at -0, 3 saturation.
template<int E, int M, int BIAS, int BEYOND> struct offc_float {
  static const unsigned SIGN = 1u << (E + M);
  __device__ static inline unsigned largest() {
    return BEYOND == 0 ? (((1u << E) - 1u) << M) - 1u : BEYOND == 1 ? SIGN - 2u : SIGN - 1u;
  }
  __device__ static inline float load(unsigned bits) {
    unsigned sign = (bits & SIGN) ? 0x80000000u : 0u, m = bits & (SIGN - 1u);
    if (BEYOND == 2 && m == 0u) return sign ? __uint_as_float(0x7fc00000u) : 0.0f;
    if (m > largest()) {
      bool infinite = BEYOND == 0 && (m & ((1u << M) - 1u)) == 0u;
      return __uint_as_float(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
    }
    int e = (int)(m >> M);
    unsigned mantissa = (m & ((1u << M) - 1u)) | (e == 0 ? 0u : 1u << M);
    int scale = (e == 0 ? 1 : e) - BIAS - M;
    float value = (float)mantissa * __uint_as_float((unsigned)(scale + 127) << 23);
    return __uint_as_float(__float_as_uint(value) | sign);
  }
  __device__ static inline unsigned store(float f) {
    unsigned w = __float_as_uint(f), sign = (w >> 31) ? SIGN : 0u, m = w & 0x7fffffffu;
    if (m > 0x7f800000u) {
      return BEYOND == 0 ? sign | (largest() + 1u) | 1u << (M - 1) : BEYOND == 1 ? sign | (SIGN - 1u) : BEYOND == 2 ? SIGN : sign ^ SIGN;
    }
    unsigned r = 0u;
    if (m != 0u) {
      int exponent = (int)(m >> 23) - 127;
      unsigned mantissa = (m & 0x7fffffu) | 0x800000u;
      if (exponent > (1 << E)) {
        r = SIGN;
      } else {
        int target = exponent > 1 - BIAS ? exponent : 1 - BIAS;
        int shift = 23 - M + (target - exponent);
        unsigned kept = 0u;
        if (shift <= 25) {
          unsigned half = 1u << (shift - 1), rest = mantissa & ((1u << shift) - 1u);
          kept = mantissa >> shift;
          kept += rest > half || (rest == half && (kept & 1u)) ? 1u : 0u;
        }
        r = ((unsigned)(target + BIAS - 1) << M) + kept;
      }
    }
    if (r > largest()) {
      return BEYOND == 0 ? sign | (largest() + 1u) : BEYOND == 1 ? sign | (SIGN - 1u) : BEYOND == 2 ? SIGN : sign | largest();
    }
    return r == 0u && BEYOND == 2 ? 0u : sign | r;
  }
  __device__ static inline float round(float f) { return load(store(f)); }
};

// Integers: nothing traps, everything wraps.
template<class T> __device__ inline T offc_div(T a, T b) { return b == 0 ? (T)-1 : b == (T)-1 && (T)-1 < (T)0 ? (T)(0 - (unsigned long long)a) : a / b; }
template<class T> __device__ inline T offc_rem(T a, T b) { return b == 0 ? a : b == (T)-1 && (T)-1 < (T)0 ? (T)0 : a % b; }
template<class T> __device__ inline T offc_pow(T x, T n) {
  if (n < 0) return x == 1 ? (T)1 : x == (T)-1 ? ((n & 1) ? (T)-1 : (T)1) : (T)0;
  if ((unsigned long long)n >= 64ull && !(x & 1)) return 0;
  unsigned long long left = (unsigned long long)n % 64ull, square = (unsigned long long)x, result = 1ull;
  for (; left; left >>= 1) { if (left & 1ull) result *= square; square *= square; }
  return (T)result;
}
// The larger; NaN if one is; +0 is larger than -0.
__device__ inline float offc_max(float a, float b) {
  if (a != a || b != b) return a + b;
  return a > b || (a == b && (__float_as_uint(b) >> 31)) ? a : b;
}
__device__ inline double offc_max(double a, double b) {
  if (a != a || b != b) return a + b;
  return a > b || (a == b && __double_as_longlong(b) < 0) ? a : b;
}
__device__ inline float offc_min(float a, float b) { return -offc_max(-a, -b); }
__device__ inline double offc_min(double a, double b) { return -offc_max(-a, -b); }
template<class T> __device__ inline T offc_imax(T a, T b) { return a >= b ? a : b; }
template<class T> __device__ inline T offc_imin(T a, T b) { return a <= b ? a : b; }
// Towards zero, saturating, NaN to 0; BITS of the type.
template<int BITS> __device__ inline long long offc_to_signed(double x) {
  const double top = BITS == 64 ? 9223372036854775808.0 : (double)(1ll << (BITS - 1 & 63));
  const long long most = (long long)(0x7fffffffffffffffull >> (64 - BITS));
  return x != x ? 0 : x >= top ? most : x < -top ? -most - 1 : (long long)x;
}
template<int BITS> __device__ inline unsigned long long offc_to_unsigned(double x) {
  const double top = BITS == 64 ? 18446744073709551616.0 : (double)(1ull << (BITS & 63));
  return !(x > 0.0) ? 0ull : x >= top ? 0xffffffffffffffffull >> (64 - BITS) : (unsigned long long)x;
}
__device__ inline float offc_sign(float x) { return x == 0.0f || x != x ? x : x < 0.0f ? -1.0f : 1.0f; }
__device__ inline double offc_sign(double x) { return x == 0.0 || x != x ? x : x < 0.0 ? -1.0 : 1.0; }
// The nearest number of so few exponent and mantissa bits (ties to even); too large is infinity, too small zero.
template<class U, int OE, int OM> __device__ inline U offc_reduce_bits(U bits, int exponent, int mantissa) {
  const U one = 1;
  U sign = bits & one << (OE + OM), m = bits ^ sign, infinity = ((one << OE) - one) << OM;
  if (m > infinity) return bits;
  int dropped = OM - mantissa;
  if (dropped > 0) m = (m + (one << (dropped - 1)) - one + (m >> dropped & one)) >> dropped << dropped;
  if (exponent == OE) return sign | m;
  U own = (one << (OE - 1)) - one, bias = (one << (exponent - 1)) - one;
  U largest = (own + bias) << OM | ((one << OM) - one), smallest = (own - bias + one) << OM;
  return sign | (m > largest ? infinity : m < smallest ? (U)0 : m);
}
__device__ inline int offc_total(float x) { int i = (int)__float_as_uint(x); return i < 0 ? i ^ 0x7fffffff : i; }
__device__ inline long long offc_total(double x) { long long i = __double_as_longlong(x); return i < 0 ? i ^ 0x7fffffffffffffffll : i; }
