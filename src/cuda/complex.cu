// Complex numbers, and what the larger operations need. `float` pairs are added, subtracted and multiplied part by part; everything else is
// computed in `double` and rounded once.
template<class T> struct __align__(2 * sizeof(T)) offc_c { T re, im; };
typedef offc_c<double> offc_z;
template<class T> __device__ inline offc_c<T> offc_complex(T re, T im) { offc_c<T> z; z.re = re; z.im = im; return z; }
__device__ inline offc_z offc_zz(double re, double im) { return offc_complex<double>(re, im); }
template<class T> __device__ inline offc_z offc_wide(offc_c<T> x) { return offc_zz((double)x.re, (double)x.im); }
template<class T> __device__ inline offc_c<T> offc_to(offc_z x) { return offc_complex<T>((T)x.re, (T)x.im); }
template<class T> __device__ inline offc_c<T> operator+(offc_c<T> a, offc_c<T> b) { return offc_complex<T>(a.re + b.re, a.im + b.im); }
template<class T> __device__ inline offc_c<T> operator-(offc_c<T> a, offc_c<T> b) { return offc_complex<T>(a.re - b.re, a.im - b.im); }
template<class T> __device__ inline offc_c<T> operator-(offc_c<T> a) { return offc_complex<T>(-a.re, -a.im); }
template<class T> __device__ inline offc_c<T> operator*(offc_c<T> a, offc_c<T> b) {
  return offc_complex<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
template<class T> __device__ inline bool operator==(offc_c<T> a, offc_c<T> b) { return a.re == b.re && a.im == b.im; }
template<class T> __device__ inline bool operator!=(offc_c<T> a, offc_c<T> b) { return !(a == b); }
// A real number where the code is one for both.
__device__ inline double offc_conj(double x) { return x; }
__device__ inline offc_z offc_conj(offc_z x) { return offc_zz(x.re, -x.im); }
__device__ inline double offc_real(double x) { return x; }
__device__ inline double offc_real(offc_z x) { return x.re; }
__device__ inline double offc_over(double x, double y) { return x / y; }
__device__ inline offc_z offc_over(offc_z x, double y) { return offc_zz(x.re / y, x.im / y); }
template<class W> __device__ inline W offc_of(double x);
template<> __device__ inline double offc_of<double>(double x) { return x; }
template<> __device__ inline offc_z offc_of<offc_z>(double x) { return offc_zz(x, 0.0); }
template<class W> __device__ inline W offc_nan() { return (W)__longlong_as_double(0x7ff8000000000000ll); }
template<> __device__ inline offc_z offc_nan<offc_z>() { return offc_zz(offc_nan<double>(), offc_nan<double>()); }
// By substitution.
__device__ inline double offc_quotient(double a, double b) { return a / b; }
__device__ inline offc_z offc_quotient(offc_z a, offc_z b) {
  if (b.im == 0.0) return offc_zz(a.re / b.re, a.im / b.re);
  double square = b.re * b.re + b.im * b.im;
  offc_z p = a * offc_conj(b);
  return offc_zz(p.re / square, p.im / square);
}
// Without include files.
__device__ inline double offc_infinity() { return __longlong_as_double(0x7ff0000000000000ll); }
__device__ inline bool offc_finite(double x) { return x - x == 0.0; }
__device__ inline bool offc_infinite(double x) { return x == x && !offc_finite(x); }

namespace offc_ {
__device__ inline offc_z scale(offc_z z, double by) { return offc_zz(z.re * by, z.im * by); }
__device__ inline offc_z times_i(offc_z z) { return offc_zz(-z.im, z.re); }
__device__ inline offc_z times_minus_i(offc_z z) { return offc_zz(z.im, -z.re); }
__device__ inline double unit(double v) { return copysign(offc_infinite(v) ? 1.0 : 0.0, v); }
// Smith's division (1962), with C99's rules for infinite and zero divisors.
__device__ inline offc_z divide(offc_z x, offc_z y) {
  if (y.re == 0.0 && y.im == 0.0) { double inf = copysign(offc_infinity(), y.re); return offc_zz(inf * x.re, inf * x.im); }
  bool xi = offc_infinite(x.re) || offc_infinite(x.im), yi = offc_infinite(y.re) || offc_infinite(y.im);
  if (xi && offc_finite(y.re) && offc_finite(y.im)) {
    double a = unit(x.re), b = unit(x.im);
    return offc_zz(offc_infinity() * (a * y.re + b * y.im), offc_infinity() * (b * y.re - a * y.im));
  }
  if (yi && offc_finite(x.re) && offc_finite(x.im)) {
    double c = unit(y.re), d = unit(y.im);
    return offc_zz(0.0 * (x.re * c + x.im * d), 0.0 * (x.im * c - x.re * d));
  }
  if (fabs(y.re) >= fabs(y.im)) {
    double r = y.im / y.re, d = y.re + y.im * r;
    return offc_zz((x.re + x.im * r) / d, (x.im - x.re * r) / d);
  }
  double r = y.re / y.im, d = y.re * r + y.im;
  return offc_zz((x.re * r + x.im) / d, (x.im * r - x.re) / d);
}
__device__ inline offc_z sign(offc_z z) {
  double n = hypot(z.re, z.im);
  return n == 0.0 ? offc_zz(0.0, 0.0) : offc_zz(z.re / n, z.im / n);
}
__device__ inline offc_z exponential(offc_z z) {
  double n = exp(z.re);
  if (z.im == 0.0) return offc_zz(n, z.im);
  if (z.re == -offc_infinity() && !offc_finite(z.im)) return offc_zz(0.0, 0.0);
  if (offc_infinite(n) && offc_finite(z.re)) { double h = exp(z.re / 2.0); return offc_zz(h * cos(z.im) * h, h * sin(z.im) * h); }
  return offc_zz(n * cos(z.im), n * sin(z.im));
}
__device__ inline offc_z exponential_minus_one(offc_z z) {
  double s = sin(z.im), h = sin(z.im / 2.0), g = expm1(z.re);
  return offc_zz(g * cos(z.im) - 2.0 * h * h, z.im == 0.0 ? z.im : (g + 1.0) * s);
}
__device__ inline double log_abs(offc_z z) {
  double a = fabs(z.re), b = fabs(z.im), large = a >= b ? a : b, small = a >= b ? b : a;
  if (large > 0.5 && large < 2.0) return 0.5 * log1p((large - 1.0) * (large + 1.0) + small * small);
  return ::log(hypot(large, small));
}
__device__ inline offc_z log(offc_z z) { return offc_zz(log_abs(z), ::atan2(z.im, z.re)); }
__device__ inline offc_z log_plus_one(offc_z z) {
  double e = z.re * (2.0 + z.re) + z.im * z.im;
  return offc_zz(fabs(e) < 0.5 ? 0.5 * log1p(e) : log_abs(offc_zz(1.0 + z.re, z.im)), ::atan2(z.im, 1.0 + z.re));
}
__device__ inline offc_z sqrt(offc_z z) {
  double a = z.re, b = z.im;
  if (a == 0.0 && b == 0.0) return offc_zz(0.0, b);
  if (offc_infinite(b)) return offc_zz(offc_infinity(), b);
  if (offc_infinite(a)) {
    if (a > 0.0) return offc_zz(a, b != b ? b : copysign(0.0, b));
    return b != b ? offc_zz(b, a) : offc_zz(0.0, copysign(offc_infinity(), b));
  }
  bool big = fmax(fabs(a), fabs(b)) > 1e300;
  double x = big ? a / 4.0 : a, y = big ? b / 4.0 : b, root = ::sqrt((hypot(x, y) + fabs(x)) / 2.0);
  double other = big ? b / (4.0 * root) : b / (2.0 * root);
  if (big) root = 2.0 * root;
  return a >= 0.0 ? offc_zz(root, other) : offc_zz(fabs(other), copysign(root, b));
}
__device__ inline offc_z power(offc_z x, offc_z y) {
  if (y.re == 0.0 && y.im == 0.0) return offc_zz(1.0, 0.0);
  if (x.re == 0.0 && x.im == 0.0) {
    if (y.re > 0.0) return offc_zz(0.0, 0.0);
    if (y.re < 0.0 && y.im == 0.0) return offc_zz(offc_infinity(), 0.0);
    return offc_nan<offc_z>();
  }
  return exponential(y * log(x));
}
__device__ inline offc_z sine(offc_z z) {
  double s = ::sinh(z.im), c = ::cosh(z.im);
  return offc_zz(z.re == 0.0 ? z.re : sin(z.re) * c, s == 0.0 ? s : cos(z.re) * s);
}
__device__ inline offc_z cosine(offc_z z) {
  double s = ::sinh(z.im), c = ::cosh(z.im);
  return offc_zz(cos(z.re) * c, z.re == 0.0 || s == 0.0 ? -z.re * s : -sin(z.re) * s);
}
__device__ inline offc_z tanh(offc_z z) {
  if (fabs(z.re) > 20.0) return offc_zz(copysign(1.0, z.re), 4.0 * exp(-2.0 * fabs(z.re)) * sin(z.im) * cos(z.im));
  double t = ::tan(z.im), s = ::sinh(z.re), c = ::cosh(z.re), b = 1.0 + t * t;
  if (offc_infinite(t)) return offc_zz(c / s, 1.0 / t);
  double d = 1.0 + b * s * s;
  return offc_zz(b * c * s / d, t / d);
}
__device__ inline offc_z sinh(offc_z z) { return times_minus_i(sine(times_i(z))); }
__device__ inline offc_z cosh(offc_z z) { return cosine(times_i(z)); }
__device__ inline offc_z tan(offc_z z) { return times_minus_i(tanh(times_i(z))); }
// Kahan's formulas (1987).
__device__ inline offc_z acos(offc_z z) {
  offc_z m = sqrt(offc_zz(1.0 - z.re, -z.im)), p = sqrt(offc_zz(1.0 + z.re, z.im));
  return offc_zz(2.0 * ::atan2(m.re, p.re), ::asinh(p.re * m.im - p.im * m.re));
}
__device__ inline offc_z acosh(offc_z z) {
  offc_z m = sqrt(offc_zz(z.re - 1.0, z.im)), p = sqrt(offc_zz(z.re + 1.0, z.im));
  return offc_zz(::asinh(m.re * p.re + m.im * p.im), 2.0 * ::atan2(m.im, p.re));
}
__device__ inline offc_z asinh(offc_z z) {
  offc_z w = times_minus_i(z), m = sqrt(offc_zz(1.0 - w.re, -w.im)), p = sqrt(offc_zz(1.0 + w.re, w.im));
  return times_i(offc_zz(::atan2(w.re, m.re * p.re - m.im * p.im), ::asinh(m.re * p.im - m.im * p.re)));
}
__device__ inline offc_z asin(offc_z z) { return times_minus_i(asinh(times_i(z))); }
__device__ inline offc_z atanh(offc_z z) {
  double a = z.re, b = z.im, square = (1.0 - a) * (1.0 - a) + b * b, n = hypot(a, b);
  double re = offc_infinite(square) ? a / n / n : 0.25 * log1p(4.0 * a / square);
  return offc_zz(re, 0.5 * ::atan2(2.0 * b, (1.0 - a) * (1.0 + a) - b * b));
}
__device__ inline offc_z atan2(offc_z y, offc_z x) {
  return times_minus_i(log(divide(x + times_i(y), sqrt(x * x + y * y))));
}
__device__ inline offc_z logistic(offc_z z) { return divide(offc_zz(1.0, 0.0), offc_zz(1.0, 0.0) + exponential(-z)); }
__device__ inline offc_z rsqrt(offc_z z) { return divide(offc_zz(1.0, 0.0), sqrt(z)); }
}

// Exponents alone (MX, OCP 2023): no sign, no zero; ties go up.
struct offc_e8m0 {
  __device__ static inline float load(unsigned bits) {
    bits &= 0xffu;
    return bits == 0xffu ? __uint_as_float(0x7fc00000u) : bits == 0u ? __uint_as_float(0x00400000u) : __uint_as_float(bits << 23);
  }
  __device__ static inline unsigned store(float f) {
    unsigned w = __float_as_uint(f);
    if (f != f || !(f > 0.0f)) return 0xffu;
    if (w >= 0x7f800000u) return 0xffu;
    int e = (int)(w >> 23);
    unsigned m = w & 0x7fffffu;
    if (e == 0) return m > 0x400000u ? 1u : 0u;
    unsigned r = (unsigned)e + (m >= 0x400000u ? 1u : 0u);
    return r > 0xffu ? 0xffu : r;
  }
  __device__ static inline float round(float f) { return load(store(f)); }
};
// The float next to a double that keeps, in its last bit, whether something was lost: rounding it again is as rounding once.
__device__ inline float offc_odd(double x) {
  float f = (float)x;
  if (x != x || offc_infinite(x) || (double)f == x) return f;
  unsigned w = __float_as_uint(f);
  if (fabs((double)f) > fabs(x)) w -= 1u;
  return __uint_as_float(w | 1u);
}
// A float as an integer, away from zero as often as random bits are below its fraction.
__device__ inline long long offc_stochastic(double x, unsigned long long random, int bits, long long top) {
  if (x != x) return 0;
  if (x >= (double)top) return top;
  if (x <= -(double)top - 1.0) return -top - 1;
  double size = fabs(x);
  long long whole = (long long)size;
  double fraction = size - (double)whole;
  unsigned long long threshold = (unsigned long long)(fraction * (bits == 64 ? 18446744073709551616.0 : (double)(1ull << (bits & 63))));
  if (fraction != 0.0 && random < threshold) whole += 1;
  return x < 0.0 ? -whole : whole < top ? whole : top;
}
// Salmon, Moraes, Dror and Shaw (2011): Philox-4x32 with 10 rounds, ThreeFry-2x32 with 20.
__device__ inline unsigned offc_philox(unsigned long long key, unsigned long long low, unsigned long long high, int word) {
  unsigned c0 = (unsigned)low, c1 = (unsigned)(low >> 32), c2 = (unsigned)high, c3 = (unsigned)(high >> 32);
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    unsigned long long a = (unsigned long long)c0 * 0xD2511F53ull, b = (unsigned long long)c2 * 0xCD9E8D57ull;
    unsigned n0 = (unsigned)(b >> 32) ^ c1 ^ k0, n2 = (unsigned)(a >> 32) ^ c3 ^ k1;
    c0 = n0; c1 = (unsigned)b; c2 = n2; c3 = (unsigned)a;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}
__device__ inline unsigned long long offc_three_fry(unsigned long long key, unsigned long long counter) {
  const int turns[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  unsigned low = (unsigned)key, high = (unsigned)(key >> 32);
  unsigned keys[3] = {low, high, low ^ high ^ 0x1BD11BDAu};
  unsigned x = (unsigned)counter + low, y = (unsigned)(counter >> 32) + high;
  for (int group = 0; group < 5; ++group) {
    for (int round = 0; round < 4; ++round) {
      int t = turns[(group & 1) * 4 + round];
      x += y;
      y = (y << t | y >> (32 - t)) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + (unsigned)group + 1u;
  }
  return (unsigned long long)x | (unsigned long long)y << 32;
}
