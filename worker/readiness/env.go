package readiness

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// The environment variables that a pool gives to each of its processes.
const (
	// VarPoolID has the name of the pool.
	VarPoolID = "LESSOR_POOL_ID"
	// VarWorkerID has the name of the worker, the same for the next process after a restart.
	VarWorkerID = "LESSOR_WORKER_ID"
	// VarPoolURL has the base address to notify, such as http://127.0.0.1:9200.
	VarPoolURL = "LESSOR_POOL_URL"
	// VarPoolToken has the bearer token for that address: a secret.
	VarPoolToken = "LESSOR_POOL_TOKEN"
	// VarGPUDevice has the index of the process's GPU on the machine. It is set only if the pool
	// has GPUs. CUDA_VISIBLE_DEVICES has the same index, so CUDA shows this GPU alone, as number 0.
	VarGPUDevice = "LESSOR_GPU_DEVICE"
)

// ErrNoPool says that VarPoolURL is not set: no pool has started this process, and there is nobody
// to notify.
var ErrNoPool = errors.New("readiness: " + VarPoolURL + " is not set: no pool has started this process")

// FromEnv returns the Notifier of this process. The error is ErrNoPool, or names the variable that
// is missing or wrong.
func FromEnv() (*Notifier, error) {
	at := os.Getenv(VarPoolURL)
	if at == "" {
		return nil, ErrNoPool
	}
	base, err := url.Parse(at)
	if err != nil || base.Scheme != "http" || base.Hostname() == "" || base.User != nil || base.RawQuery != "" ||
		base.Fragment != "" {
		return nil, fmt.Errorf("readiness: %s is %q; it must be like http://127.0.0.1:9200", VarPoolURL, at)
	}
	for _, name := range []string{VarPoolID, VarWorkerID, VarPoolToken} {
		if os.Getenv(name) == "" {
			return nil, fmt.Errorf("readiness: %s is not set, but %s is", name, VarPoolURL)
		}
	}
	token := os.Getenv(VarPoolToken)
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("readiness: %s has a character that no token has", VarPoolToken)
	}
	gpu, err := gpuDevice()
	if err != nil {
		return nil, err
	}
	return &Notifier{
		base:   base,
		token:  &token,
		worker: os.Getenv(VarWorkerID),
		pool:   os.Getenv(VarPoolID),
		gpu:    gpu,
		turn:   make(chan struct{}, 1),
		client: &http.Client{
			// The supervisor is on this machine: a proxy would only get to see the token. Calls are
			// rare, so no connection is kept.
			Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true},
			// the token is for this address alone
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// gpuDevice returns the index of the GPU, or nil if the pool has none.
func gpuDevice() (*uint32, error) {
	text := os.Getenv(VarGPUDevice)
	if text == "" {
		return nil, nil
	}
	index, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("readiness: %s is %q; it must be the index of a GPU", VarGPUDevice, text)
	}
	device := uint32(index)
	return &device, nil
}
