/* Tests solutions of triangular systems against substitution in float64, also where the triangle is badly
 * conditioned. The unit of an error of element i of a solution x is (|T^-1| |T| |x|)_i roundings: the bound of
 * substitution grows like that. */
#include "test.h"
#include "linalg.h"
#include "trsm.h"

enum { MOST = 257, OTHER = 150, GAP = 3 };
#define EPS 0x1p-24

typedef enum kind { PLAIN, GRADED, KAHAN, NEARLY_SINGULAR, KINDS } kind;
static const char *const names[KINDS] = { "plain", "graded", "kahan", "nearly singular" };

static float T[MOST * MOST], X[MOST * (OTHER + GAP)], B[MOST * (OTHER + GAP)], Y[MOST];
static double inverse[MOST * MOST], x[MOST];

static bool is_ours; /* whether the solution by blocks is tested, or the one that suits this machine */

static double next_random(void)
{
    static uint32_t seed = 1;

    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / 8388608.0 - 1;
}

/* Fills T with an upper triangle of n rows, and NaN below it. */
static void fill(kind k, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double grade = pow(10, 8.0 * i / n - 4), value = next_random();
            if (k == KAHAN) value = i == j ? 1 : -0.3;
            if (k == KAHAN) value *= pow(0.954, i);
            if (k == PLAIN && i == j) value = 2 + fabs(value);
            if (k == PLAIN && i != j) value /= sqrt(n);
            if (k == GRADED) value = (i == j ? 1 + fabs(value) : value / sqrt(n)) * grade;
            if (k == NEARLY_SINGULAR) value = i == j ? (i % 61 == 3 ? 1e-4 : 1) : value / n;
            T[i * n + j] = j < i ? NAN : (float)value;
        }
}

/* Computes the inverse of T in float64. */
static void invert(int n)
{
    memset(inverse, 0, sizeof inverse);
    for (int j = 0; j < n; j++)
        for (int i = j; i >= 0; i--) {
            double sum = i == j;
            for (int k = i + 1; k <= j; k++) sum -= (double)T[i * n + k] * inverse[k * n + j];
            inverse[i * n + j] = sum / (double)T[i * n + i];
        }
}

/* Element (i, j) of op(T). */
static double t(int n, bool turned, int i, int j)
{
    if (turned ? i < j : j < i) return 0;
    return (double)(turned ? T[j * n + i] : T[i * n + j]);
}

/* Solves op(T) x = b by substitution: in float64 to x, in float32 to Y. */
static void substitute(int n, bool turned, const double *b)
{
    for (int s = 0; s < n; s++) {
        int i = turned ? s : n - 1 - s;
        double wide = b[i];
        float narrow = (float)b[i];
        for (int k = turned ? 0 : i + 1; k < (turned ? i : n); k++) {
            wide -= t(n, turned, i, k) * x[k];
            narrow -= (float)t(n, turned, i, k) * Y[k];
        }
        x[i] = wide / t(n, turned, i, i);
        Y[i] = narrow / (float)t(n, turned, i, i);
    }
}

/* Returns the unit in which the error of element i of the solution is told: EPS times element i of |T^-1| |T| |x|, the
 * error that rounding makes in any case. */
static double unit_of(int n, bool turned, int i)
{
    double unit = 0;

    for (int j = 0; j < n; j++) {
        double product = 0, inv = turned ? inverse[j * n + i] : inverse[i * n + j];
        if (inv == 0) continue;
        for (int k = 0; k < n; k++) product += fabs(t(n, turned, j, k) * x[k]);
        unit += fabs(inv) * product;
    }
    return EPS * unit;
}

/* Solves a system with `vectors` right-hand sides, and compares some of them. Stores the largest error in units, and
 * that of substitution in float32. */
static void solve(int n, bool turned, pd_side side, int vectors, double *error, double *other)
{
    int64_t stride = (side == PD_LEFT ? vectors : n) + GAP;
    pd_mat S = { X, side == PD_LEFT ? n : vectors, side == PD_LEFT ? vectors : n, stride };
    pd_turn u = (side == PD_LEFT) == turned ? PD_TRANSPOSED : PD_AS_IS; /* X op(U) = B is op(U)' X' = B' */

    for (int64_t i = 0; i < S.rows * stride; i++) X[i] = B[i] = (float)next_random();
    (is_ours ? pd_trsm_by_blocks : pd_trsm)(S, pd_mat_dense(T, n, n), u, side);
    for (int64_t i = 0; i < S.rows; i++)
        assert_memory_equal(X + i * stride + S.cols, B + i * stride + S.cols, GAP * sizeof *X);
    for (int v = 0; v<vectors; v += vectors> 1 ? vectors - 1 : 1) {
        int64_t first = side == PD_LEFT ? v : v * stride, each = side == PD_LEFT ? stride : 1;
        double b[MOST];
        for (int i = 0; i < n; i++) b[i] = (double)B[first + i * each];
        substitute(n, turned, b);
        for (int i = 0; i < n; i++) {
            double unit = unit_of(n, turned, i);
            *error = fmax(*error, fabs((double)X[first + i * each] - x[i]) / unit);
            *other = fmax(*other, fabs((double)Y[i] - x[i]) / unit);
        }
    }
}

TEST(solutions_are_as_accurate_as_by_substitution)
{
    static const int sizes[] = { 1, 2, 31, 32, 33, 64, 65, 100, 128, MOST };

    for (int k = 0; k < KINDS; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int n = sizes[s];
            double error = 0, other = 0;
            fill((kind)k, n);
            invert(n);
            for (int way = 0; way < 8; way++) {
                is_ours = way % 2;
                solve(n, way / 2 % 2, way / 4 ? PD_RIGHT : PD_LEFT, way / 2 % 2 ? OTHER : 1, &error, &other);
            }
            if (getenv("VERBOSE") != NULL) printf("%s %d: %.3f, by substitution %.3f\n", names[k], n, error, other);
            if (!(error < 8 && error < 2 * other + 1))
                fail_msg("%s, %d rows: error %g, by substitution %g", names[k], n, error, other);
        }
}

TEST(a_singular_triangle_gives_no_finite_solution)
{
    fill(PLAIN, 100);
    T[70 * 100 + 70] = 0;
    for (int i = 0; i < 100; i++) X[i] = 1;
    pd_trsm_by_blocks(pd_mat_dense(X, 100, 1), pd_mat_dense(T, 100, 100), PD_AS_IS, PD_LEFT);
    assert_false(isfinite(X[70]));
    for (int i = 71; i < 100; i++) assert_true(isfinite(X[i]));
}
