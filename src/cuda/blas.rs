//! Matrix products by cuBLAS, where it is installed.
//!
//! `f32` is computed in `f32` (`CUBLAS_COMPUTE_32F`; TF32 only where it is asked for), `bf16` and `f16` are summed in `f32`, and partial sums stay in it. One handle, one
//! stream, one workspace of ours: equal runs on one GPU give equal bits (cuBLAS documentation, "Results reproducibility").

#![expect(unsafe_code, reason = "cuBLAS is a C library that takes raw addresses")]

use std::ffi::c_void;

use cudarc::cublas::{result, sys};
use cudarc::driver::{CudaStream, sys::CUdeviceptr};

use super::driver::Result;
use super::product::Product;
use crate::ir::Primitive;

/// Bytes of workspace: what NVIDIA names for Hopper (cuBLAS documentation, `cublasSetWorkspace`).
pub const WORKSPACE: usize = 32 << 20;

/// Whether the library is installed.
pub fn is_present() -> bool {
    // SAFETY: opening the library runs its initialisers, which every program that uses it does.
    unsafe { sys::is_culib_present() }
}

/// A handle on one stream.
pub struct Blas {
    handle: sys::cublasHandle_t,
    fast: bool,
}

impl Blas {
    /// Opens the library for a stream, with a workspace that outlives it; `fast` allows TF32.
    pub fn new(stream: &CudaStream, workspace: CUdeviceptr, bytes: usize, fast: bool) -> Result<Self> {
        let said = |what: &str, e: result::CublasError| format!("{what}: {e:?}");
        let handle = result::create_handle().map_err(|e| said("cuBLAS does not start", e))?;
        let this = Self { handle, fast };
        let math = if fast {
            sys::cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH
        } else {
            sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
        };
        // SAFETY: the handle is open; the stream and the workspace outlive it. The stream comes first: setting it takes the workspace back.
        unsafe {
            result::set_stream(handle, stream.cu_stream().cast()).map_err(|e| said("cuBLAS does not take the stream", e))?;
            let set = sys::cublasSetWorkspace_v2(handle, workspace as *mut c_void, bytes).result();
            set.map_err(|e| said("cuBLAS does not take its workspace", e))?;
            sys::cublasSetMathMode(handle, math).result().map_err(|e| said("cuBLAS does not take the mode", e))?;
        }
        Ok(this)
    }

    /// Queues a product.
    pub fn multiply(&self, product: &Product<u64>) -> Result<()> {
        let kind = |element: Primitive| match element {
            Primitive::F64 => sys::cudaDataType::CUDA_R_64F,
            Primitive::F16 => sys::cudaDataType::CUDA_R_16F,
            Primitive::BF16 => sys::cudaDataType::CUDA_R_16BF,
            _ => sys::cudaDataType::CUDA_R_32F,
        };
        let compute = match product.from {
            Primitive::F64 => sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            Primitive::F32 if self.fast => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let op = |transposed| if transposed { sys::cublasOperation_t::CUBLAS_OP_T } else { sys::cublasOperation_t::CUBLAS_OP_N };
        let wide = [product.alpha, product.beta];
        let narrow = wide.map(|x| x as f32);
        let scalar = |i: usize| -> *const c_void {
            if product.from == Primitive::F64 { (&raw const wide[i]).cast() } else { (&raw const narrow[i]).cast() }
        };
        let ([m, n, k], [lda, ldb, ldc], [sa, sb, sc]) = (product.sizes, product.leading, product.strides);
        let (a, b, c) = (product.a as *const c_void, product.b as *const c_void, product.c as *mut c_void);
        // SAFETY: the addresses are of our arenas, which outlive the work; sizes and strides are those of arrays that lie there whole. The
        // factors are read before the call returns.
        let queued = unsafe {
            result::gemm_strided_batched_ex(
                self.handle,
                op(product.transpose_a),
                op(product.transpose_b),
                m,
                n,
                k,
                scalar(0),
                a,
                kind(product.from),
                lda,
                sa,
                b,
                kind(product.from),
                ldb,
                sb,
                scalar(1),
                c,
                kind(product.to),
                ldc,
                sc,
                product.batch,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        queued.map_err(|e| format!("cuBLAS does not multiply {m} x {k} by {k} x {n}, {} times: {e:?}", product.batch))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is open and not used again. There is nobody to tell of an error.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}
