// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// DefaultSuffix of new claims.
const DefaultSuffix = "-restored"

// Naming says what new claims are called. At most one of its fields is used.
type Naming struct {
	// Suffix is appended to the original names.
	Suffix string
	// Into are names: old=new, or only new for one claim or as many as there are claims asked for, in their order.
	Into []string
	// StatefulSet and As: data-OLD-0 becomes data-NEW-0.
	StatefulSet, As string
}

// Names of the new claims by the original ones. The order of claims is that in which they were asked for.
func (n Naming) Names(claims []string) (map[string]string, error) {
	names := map[string]string{}
	switch {
	case n.StatefulSet != "":
		for _, c := range claims {
			m := ordinal(n.StatefulSet).FindStringSubmatch(c)
			if m == nil {
				return nil, fmt.Errorf("claim %s is not one of StatefulSet %s: its name does not end in -%s-0 or another number", c, n.StatefulSet, n.StatefulSet)
			}
			names[c] = m[1] + "-" + n.As + "-" + m[2]
		}
	case len(n.Into) > 0:
		if err := n.into(claims, names); err != nil {
			return nil, err
		}
	default:
		for _, c := range claims {
			names[c] = c + n.Suffix
		}
	}
	return names, valid(claims, names)
}

func (n Naming) into(claims []string, names map[string]string) error {
	pairs := slices.ContainsFunc(n.Into, func(s string) bool { return strings.Contains(s, "=") })
	if !pairs {
		if len(n.Into) != len(claims) {
			return fmt.Errorf("--into names %d claims and %d are restored (%s): write old=new for each", len(n.Into), len(claims), strings.Join(claims, ", "))
		}
		for i, c := range claims {
			names[c] = n.Into[i]
		}
		return nil
	}
	for _, p := range n.Into {
		from, to, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("--into mixes names and old=new: write old=new for each of %s", strings.Join(claims, ", "))
		}
		if !slices.Contains(claims, from) {
			return fmt.Errorf("--into %s: claim %s is not among those that are restored (%s)", p, from, strings.Join(claims, ", "))
		}
		names[from] = to
	}
	for _, c := range claims {
		if names[c] == "" {
			return fmt.Errorf("--into says nothing about claim %s: add %s=NEW, or leave it out with --claims", c, c)
		}
	}
	return nil
}

// valid names, each once.
func valid(claims []string, names map[string]string) error {
	taken := map[string]string{}
	for _, c := range claims {
		name := names[c]
		if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
			return fmt.Errorf("the new claim of %s cannot be called %q: %s", c, name, strings.Join(why, "; "))
		}
		if other, ok := taken[name]; ok {
			return fmt.Errorf("claims %s and %s would both become %s", other, c, name)
		}
		taken[name] = c
	}
	return nil
}

// ordinal matches the claims of a StatefulSet: template, number.
func ordinal(set string) *regexp.Regexp {
	return regexp.MustCompile(`^(.+)-` + regexp.QuoteMeta(set) + `-(\d+)$`)
}

// OfStatefulSet are the claims among those given that belong to a StatefulSet. sets are those that exist: if it is among them its templates decide,
// and what belongs to another one is left out.
func OfStatefulSet(set string, claims []string, sets []appsv1.StatefulSet) []string {
	owner := func(claim string) string {
		for i := range sets {
			s := &sets[i]
			for j := range s.Spec.VolumeClaimTemplates {
				rest, ok := strings.CutPrefix(claim, s.Spec.VolumeClaimTemplates[j].Name+"-"+s.Name+"-")
				if ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
					return s.Name
				}
			}
		}
		return ""
	}
	exists := slices.ContainsFunc(sets, func(s appsv1.StatefulSet) bool { return s.Name == set })
	var out []string
	for _, c := range claims {
		if o := owner(c); o == set || (o == "" && !exists && ordinal(set).MatchString(c)) {
			out = append(out, c)
		}
	}
	return out
}

// Collisions are the new names that exist already, in words.
func Collisions(claims []string, names map[string]string, existing []corev1.PersistentVolumeClaim) []string {
	var out []string
	for _, c := range claims {
		i := slices.IndexFunc(existing, func(e corev1.PersistentVolumeClaim) bool { return e.Name == names[c] })
		if i < 0 {
			continue
		}
		words := "claim " + names[c] + " exists"
		if from := existing[i].Annotations[v1.AnnotationRestoredFrom]; from != "" {
			words += fmt.Sprintf(" (restored from snapshot %s at %s)", from, stamp(existing[i].CreationTimestamp.Time))
		}
		out = append(out, words)
	}
	return out
}
