package bench

import (
	"context"
	"errors"
	"os"
	"time"
)

// rateOver calls one until span is over, at least once, and returns the calls per second.
func rateOver(ctx context.Context, span time.Duration, one func() error) (float64, error) {
	begin, count := time.Now(), 0
	for time.Since(begin) < span || count == 0 {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if err := one(); err != nil {
			return 0, err
		}
		count++
	}
	return float64(count) / time.Since(begin).Seconds(), nil
}

// diskLimit appends 4 KiB and flushes them, again and again.
func (c *Config) diskLimit(ctx context.Context) (samples, error) {
	file, err := os.CreateTemp(c.Dir, "lessor-bench-")
	if err != nil {
		return nil, err
	}
	block, appended := make([]byte, 4<<10), 0
	disk := flushCounterOf(file.Name())
	before, counted := disk.read()
	rate, err := rateOver(ctx, c.LimitSpan, func() error {
		if _, err := file.Write(block); err != nil {
			return err
		}
		appended++
		return flush(file)
	})
	found := samples{"disk_flush": rate}
	if after, still := disk.read(); counted && still && appended > 0 {
		found[flushesOf("disk_flush")] = float64(after-before) * 1000 / float64(appended)
	}
	return found, errors.Join(err, file.Close(), os.Remove(file.Name()))
}
