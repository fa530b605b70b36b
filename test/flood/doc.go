// Package flood checks that one tenant's flood of calls does no more to another tenant than turns
// and quotas allow.
package flood
