# The feedline command and library in a small image.
#
#   docker build -t feedline .
#   docker run --rm -v /data:/data feedline bench /data/train
#
# With the CUDA stage: build where nvcc is. The CUDA runtime is linked in, so the image that runs needs no CUDA.
#   docker build -t feedline --build-arg BUILD_BASE=nvidia/cuda:12.6.3-devel-ubuntu24.04 \
#       --build-arg RUN_BASE=ubuntu:24.04 .
#
# docs/containers.md: io_uring, locked memory, GPUs.
ARG BUILD_BASE=debian:12-slim
ARG RUN_BASE=debian:12-slim

FROM ${BUILD_BASE} AS build
COPY scripts/setup.sh /src/scripts/
RUN bash -euc '. /src/scripts/setup.sh && install_packages "${build_packages[@]}"' && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr/local \
        -DCMAKE_INSTALL_LIBDIR=lib -DFL_TESTS=OFF -DFL_BENCH=OFF -DFL_EXAMPLES=OFF && \
    cmake --build /build && DESTDIR=/out cmake --install /build --strip

FROM ${RUN_BASE}
COPY --from=build /out/ /
RUN ldconfig && useradd --uid 10001 --create-home feedline
USER feedline
ENTRYPOINT ["feedline"]
CMD ["--help"]
