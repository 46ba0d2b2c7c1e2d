// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	crvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/config/crd"
)

// schema judges objects of one kind as the API server does when they are created.
type schema struct {
	structural *structuralschema.Structural
	openAPI    crvalidation.SchemaValidator
	rules      *cel.Validator
}

// schemas by kind, read once: compiling their rules takes a moment.
var schemas = sync.OnceValues(func() (map[string]*schema, error) {
	out := map[string]*schema{}
	for kind, definition := range map[string][]byte{"SnapshotSchedule": crd.Schedules, "SnapshotRun": crd.Runs} {
		s, err := newSchema(definition)
		if err != nil {
			return nil, fmt.Errorf("reading the definition of %s that is built in: %w", kind, err)
		}
		out[kind] = s
	}
	return out, nil
})

func newSchema(definition []byte) (*schema, error) {
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &external); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(external.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == v1.GroupVersion.Version })
	if i < 0 {
		return nil, fmt.Errorf("it has no version %s", v1.GroupVersion.Version)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external.Spec.Versions[i].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		return nil, err
	}
	openAPI, _, err := crvalidation.NewSchemaValidator(&props)
	if err != nil {
		return nil, err
	}
	return &schema{structural: structural, openAPI: openAPI, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// unknown fields of an object, as paths.
func (s *schema) unknown(fields map[string]any) []string {
	paths := pruning.PruneWithOptions(runtime.DeepCopyJSON(fields), s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	_, _, inMetadata, err := objectmeta.GetObjectMetaWithOptions(fields, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return paths // check reports it
	}
	return append(paths, inMetadata...)
}

// check an object that is about to be created.
func (s *schema) check(ctx context.Context, fields map[string]any) field.ErrorList {
	fields = runtime.DeepCopyJSON(fields)
	delete(fields, "status") // the API server drops it, and nulls where there can be none
	defaulting.PruneNonNullableNullsWithoutDefaults(fields, s.structural)
	var errs field.ErrorList
	if meta, found, err := objectmeta.GetObjectMeta(fields, false); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), nil, err.Error()))
	} else {
		if !found {
			meta = &metav1.ObjectMeta{}
		}
		if meta.Namespace == "" {
			meta.Namespace = "default" // whoever creates it says where
		}
		errs = append(errs, nameable(validation.ValidateObjectMeta(meta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata")), meta.GenerateName)...)
	}
	errs = append(errs, crvalidation.ValidateCustomResource(nil, fields, s.openAPI)...)
	errs = append(errs, objectmeta.Validate(ctx, nil, fields, s.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, fields)...)
	if slices.ContainsFunc(errs, blocks) {
		return errs // the rules could not be computed; they come up once these are corrected
	}
	broken, _ := s.rules.Validate(ctx, nil, s.structural, fields, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, broken...)
}

// nameable: an object whose name will be generated has none yet.
func nameable(errs field.ErrorList, generateName string) field.ErrorList {
	if generateName == "" {
		return errs
	}
	return slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Field == "metadata.name" && e.Type == field.ErrorTypeRequired })
}

// blocks: rules written for well-formed objects cannot be computed for this one.
func blocks(e *field.Error) bool {
	switch e.Type {
	case field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	default:
		return false
	}
}

// typeOnly is what stands for the value in the errors of CEL rules.
var typeOnly = regexp.MustCompile(`^(?:Invalid value|Required value|Forbidden): "(?:object|array|string|integer|boolean)": `)

// words of a field error, without its path.
func words(e *field.Error) string {
	return typeOnly.ReplaceAllString(e.ErrorBody(), "")
}
